"""Policy x env x seeds: rollouts and the screen."""
