package instance

import (
	"fmt"
	"testing"

	"quartermaster/domain"
)

// ownedFor is an instance in days in which one unit is always wanted and can be owned for a
// lifetime in days.
func ownedFor(days, life int, rate, salvage string, o Offer) *Instance {
	hourly := make([]int, 24*days)
	for i := range hourly {
		hourly[i] = 1
	}
	from, err := domain.ParseInstant("2027-01-01T00:00:00Z")
	if err != nil {
		panic(err)
	}
	o.ID, o.Pool, o.Term, o.GuaranteesCapacity, o.To = "o", "p", life, true, from+domain.Hour
	return &Instance{
		Format: Format, Name: "owned", Currency: "USD", From: from, Epoch: Days, Epochs: days, AnnualRate: dec(rate), Salvage: dec(salvage),
		Regions: []Region{{ID: "r"}}, Pools: []Pool{{ID: "p", Region: "r", Class: "K", Unit: "gpu", OnDemand: &Price{Hourly: dec("100")}}},
		Demands: []Demand{{ID: "d", Pool: "p", Hourly: hourly, Shortage: dec("1000")}}, Offers: []Offer{o},
	}
}

func machine(power, space, salvage string) *Owned {
	return &Owned{PowerKW: dec(power), PUE: dec("1.5"), TariffKWh: dec("0.2"), SpaceMonthly: dec(space), Salvage: dec(salvage)}
}

// A machine of 1,000 is sold for 100 after 40 days, ten of which are in the horizon. Its lifetime
// costs 900, a quarter of it within the horizon. Running it costs 1 × 1.5 × 0.2 × 240 = 72 for
// power, and 10/31 of 31 for space.
func TestOwnedBeyondTheHorizonByHand(t *testing.T) {
	for salvage, want := range map[string]string{
		"0":    "982",   // 900 + 82
		"0.5":  "644.5", // 900 × (0.25 + 0.75 ÷ 2) + 82
		"1":    "307",   // 900 ÷ 4 + 82
		"0.25": "813.25",
	} {
		in := ownedFor(10, 40, "0", salvage, Offer{Kind: domain.OfferOwned, Upfront: dec("1000"), Owned: machine("1", "31", "0.1")})
		a := solved(t, in)
		same(t, "cost at a salvage of "+salvage, a.Cost, want)
		// The sensitivity shows both salvage shares for the same purchases.
		if len(a.EndOfHorizon) != 2 {
			t.Fatalf("%d ends of the horizon", len(a.EndOfHorizon))
		}
		same(t, "with nothing kept", a.EndOfHorizon[0].Cost, "982")
		same(t, "with all kept", a.EndOfHorizon[1].Cost, "307")
	}
}

// Two years of life, one of them in the horizon, at ten percent: 1,210 less the 121 received after
// two years, worth 100 today, are 1,110. Three quarters of it count at a salvage of one half.
func TestOwnedIsDiscounted(t *testing.T) {
	in := ownedFor(365, 730, "0.1", "0.5", Offer{Kind: domain.OfferOwned, Upfront: dec("1210"), Owned: machine("0", "0", "0.1")})
	same(t, "cost", solved(t, in).Cost, "832.5")
}

// A lifetime that ends with the horizon leaves nothing to salvage: its cost does not depend on the
// salvage share, and no sensitivity is shown.
func TestOwnedWithinTheHorizon(t *testing.T) {
	for _, salvage := range []string{"0", "0.5", "1"} {
		in := ownedFor(365, 365, "0.1", salvage, Offer{Kind: domain.OfferOwned, Upfront: dec("1210"), Owned: machine("0", "0", "0.1")})
		a := solved(t, in)
		same(t, "cost", a.Cost, "1100") // 1,210 − 121 ÷ 1.1
		if len(a.EndOfHorizon) != 0 {
			t.Errorf("sensitivity %v of what does not outlive the horizon", a.EndOfHorizon)
		}
	}
}

// Hardware without running cost or residual value costs the same as an upfront term of the same
// length, so the end of the horizon favours neither.
func TestOwnedAndUpfrontTermsEndAlike(t *testing.T) {
	for _, days := range []int{3, 10, 30, 365} {
		for _, salvage := range []string{"0", "0.3", "1"} {
			own := ownedFor(days, 365, "0.08", salvage, Offer{Kind: domain.OfferOwned, Upfront: dec("1234.56"), Owned: machine("0", "0", "0")})
			rent := ownedFor(days, 365, "0.08", salvage, Offer{Kind: domain.OfferReserved, Upfront: dec("1234.56")})
			same(t, fmt.Sprintf("owned for %d days at %s", days, salvage), solved(t, own).Cost, solved(t, rent).Cost.String())
		}
	}
}
