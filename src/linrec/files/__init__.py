"""Files written whole or not at all, and unreadable ones told in one sentence."""
