"""What somebody who is not trusted can do: a neighbour on the machine, a server, a name, a file."""
