"""What every part of lazybo uses: checks of arguments, plain data, text, files."""
