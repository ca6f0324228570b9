from .command import main

if __name__ == "__main__":  # a worker of the card's run imports this module, too
    main()
