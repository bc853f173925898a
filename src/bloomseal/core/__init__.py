"""The core: what may be left out of a read, and which keys open what. It imports nothing of Bloomseal but itself."""
