"""Audits: a file or a folder a level. Each reads a case and gives a finding; none knows another's verdict."""
