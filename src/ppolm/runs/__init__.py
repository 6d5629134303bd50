"""Run folders: what they contain, and how they are written so that nothing is left incomplete."""
