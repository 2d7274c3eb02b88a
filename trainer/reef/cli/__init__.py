"""The `reef` command. Modules here import nothing heavy: `reef --help` answers at once."""
