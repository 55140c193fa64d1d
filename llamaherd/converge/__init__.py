"""What is to be done so that a host becomes as planned: pure functions of the plan and of what was seen.

Each gives a list of steps, empty where all is as it shall be. That is decided by state alone, never by what happened
in this run: a run that was killed anywhere leaves a state, and the next run goes on from there.
"""
