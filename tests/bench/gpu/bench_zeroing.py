"""The cost of zeroing memory between users, on a GPU: ../zeroing.py."""

import zeroing

if __name__ == "__main__":
    zeroing.main()
