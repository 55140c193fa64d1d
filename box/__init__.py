"""The rig in a box: a throwaway host in a container, and the files that its models need."""
