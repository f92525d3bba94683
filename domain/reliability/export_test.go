package reliability

import "quartermaster/domain"

// Reaches exports the check in whole numbers.
func Reaches(n, s int, unavailability, level domain.Decimal) bool {
	return reaches(n, s, unavailability, level)
}

// ReachesCounted exports the check of a rate that was counted.
func ReachesCounted(n, s int, unavailability, level domain.Decimal, counted int) bool {
	return reachesCounted(n, s, unavailability, level, counted)
}
