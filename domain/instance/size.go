package instance

// Size returns what the memory and time for a problem grow with, at most: the purchases to decide, by offer, size of order
// and first epoch, and the loads to serve, by demand, hour or step of a curve, and scenario. A short document may ask for
// many of both.
func (in *Instance) Size() (purchases, loads int) {
	for i := range in.Offers {
		purchases += in.Epochs * (1 + len(in.Offers[i].Tiers))
	}
	for i := range in.Demands {
		d := &in.Demands[i]
		loads += len(d.Hourly)
		for _, curve := range d.Duration {
			loads += len(curve)
		}
	}
	return purchases, loads * max(1, len(in.Scenarios))
}
