"""The built-in policies, as TOML files beside this one."""
