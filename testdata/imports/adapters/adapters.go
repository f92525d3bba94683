package adapters // refused
