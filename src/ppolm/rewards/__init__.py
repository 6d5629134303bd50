"""Where scores come from. A reward is any callable ``(prompts, responses, **columns)``."""
