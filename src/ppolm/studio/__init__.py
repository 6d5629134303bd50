"""The pages in a browser: runs, tokens, judging. Reads run folders, writes only the feedback store."""
