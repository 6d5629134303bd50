"""The page over run folders and the feedback store, in the browser."""
