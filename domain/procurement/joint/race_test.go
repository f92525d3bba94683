//go:build race

package joint_test

// raced says that the race detector is on, under which all takes many times as long.
const raced = true
