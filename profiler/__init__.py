"""Everything that touches a device, a process, a file of weights or a clock."""
