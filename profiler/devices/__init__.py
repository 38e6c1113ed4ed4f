"""What machines tell of themselves, one module an interface; nothing raises for lack of one."""
