package deep // refused
