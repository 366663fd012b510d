"""Policies that run somewhere else, or in somebody else's code, behind the contract of :mod:`simgap.policies.base`.

Importing this package imports none of them; :mod:`simgap.policies.bridges.open` opens one by its policy file.
"""

KIND_NAMES = ("openpi", "vla-eval", "openvla", "lerobot")
"""What a policy file may call its ``kind``."""
