"""`python -m linrec`, which is how torchrun starts it."""

from linrec.cli import main

if __name__ == "__main__":
    main()
