"""Where files are kept that outlive this machine."""
