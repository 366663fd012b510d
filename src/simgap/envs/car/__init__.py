"""The 1:14 RC car: one model, shared by every driving task."""
