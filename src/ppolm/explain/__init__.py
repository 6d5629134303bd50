"""Why a token has the advantage it has, and what it would have with other settings: pure functions of a stored step."""
