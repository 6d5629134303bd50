"""Rewards, which score responses. A reward is any callable ``(prompts, responses, **columns)``."""
