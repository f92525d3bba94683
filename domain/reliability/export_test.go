package reliability

import "quartermaster/domain"

// Reaches exports the check in whole numbers.
func Reaches(n, s int, unavailability, level domain.Decimal) bool {
	return reaches(n, s, unavailability, level)
}
