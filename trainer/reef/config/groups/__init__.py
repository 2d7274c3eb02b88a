"""The groups of settings: one mixin with its fluent setter per group."""
