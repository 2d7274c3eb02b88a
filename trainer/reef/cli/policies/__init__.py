"""Commands that use the policy of a checkpoint without its environment."""
