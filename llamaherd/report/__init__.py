"""What measurements say together, for people: one page of HTML, Markdown, a table on the terminal."""
