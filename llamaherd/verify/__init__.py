"""What live hosts are asked, and how their answers are judged."""
