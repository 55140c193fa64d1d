"""The models' part of the program on hosts: fetch them, let them into the store, and share them."""
