"""What may pass.

A policy looks at a request and the view of its group, and says Allow or Refuse; it does no I/O and
keeps no state of its own. Only a policy that an operator switched on ever refuses a client.

One file per policy. `verdicts` has what they share.
"""
