"""What a study shows: records of numbers, and pictures of them."""
