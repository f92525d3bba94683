package attribution

// Amount is money, exact: a signed 128-bit integer in 10⁻¹⁸ of the currency.
type Amount struct {
	hi int64
	lo uint64
}
