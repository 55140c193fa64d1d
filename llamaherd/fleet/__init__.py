"""The fleet as a whole: its gateway and users, the state of all hosts, dashboards."""
