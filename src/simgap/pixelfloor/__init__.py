"""How few pixels a target may have before nothing can be learnt from its pictures: ruler, probe, floor and the gate before a training."""
