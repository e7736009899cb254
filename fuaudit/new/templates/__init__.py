"""What `fuaudit new` begins with: a module for each kind of plugin, read as text and never imported here."""
