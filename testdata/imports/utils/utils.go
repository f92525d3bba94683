package utils // refused
