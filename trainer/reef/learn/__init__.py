"""Learners: a batch becomes minibatches, a loss, a gradient and a step."""
