"""Tables 3, 4 and 5 and Figure 1 of the paper: horses cut out of images."""
