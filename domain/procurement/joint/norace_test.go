//go:build !race

package joint_test

// raced says that the race detector is on.
const raced = false
