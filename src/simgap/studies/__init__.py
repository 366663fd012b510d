"""Studies of what the rest of the package builds on: each a resumable harness that writes a page with the command that made it."""
