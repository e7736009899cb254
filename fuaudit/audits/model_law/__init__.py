"""Level 6: final models, repeatedly unlearned against repeatedly retrained."""
