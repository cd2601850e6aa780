"""What searches share: the samples still under attack, the closest fooling images, projections onto planes."""
