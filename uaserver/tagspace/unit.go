package tagspace

import (
	"strings"

	"edged/uaserver/wire"
)

// unitsURI names the units of UNECE Recommendation 20 (Part 8, 5.6.3.3).
const unitsURI = "http://www.opcfoundation.org/UA/units/un/cefact"

// unit is a unit of measurement of UNECE Recommendation 20.
type unit struct {
	code        string // common code
	name        string // as the OPC Foundation displays it
	description string
	also        string // other ways to write it, separated by blanks
}

// appendUnit appends the EUInformation (Part 8, 5.6.3.3) of a unit as people write it. One that is not known has the
// text alone.
func appendUnit(dst []byte, text string) []byte {
	id, name, description := int32(-1), text, text
	if u := unitOf(text); u != nil {
		id, name, description = unitID(u.code), u.name, u.description
	}
	dst = wire.AppendString(dst, unitsURI)
	dst = wire.AppendUint32(dst, uint32(id))
	dst = wire.AppendLocalizedText(dst, "", name)
	return wire.AppendLocalizedText(dst, "", description)
}

// unitID is the number that Part 8, 5.6.3.3 makes of a common code: its characters as bytes, the last one lowest.
func unitID(code string) int32 {
	n := int32(0)
	for i := range len(code) {
		n = n<<8 | int32(code[i])
	}
	return n
}

// unitOf finds a unit by one of the ways to write it; nil if none is known.
func unitOf(text string) *unit { return unitTexts[spell(text)] }

// spell makes one text of those that differ in nothing but how they are typed.
func spell(text string) string { return spelling.Replace(text) }

var spelling = strings.NewReplacer("\u03bc", "u", "\u00b5", "u", "\u2126", "\u03a9", "²", "2", "³", "3", "₂", "2",
	"⁻¹", "-1", "^", "", "·", "", "*", "", " ", "")

// unitTexts are the units by every way to write them.
var unitTexts = func() map[string]*unit {
	m := make(map[string]*unit, 2*len(units))
	for i := range units {
		u := &units[i]
		m[spell(u.name)] = u
		for _, text := range strings.Fields(u.also) {
			m[spell(text)] = u
		}
	}
	return m
}()

// units are those of Recommendation 20, annexes I to III, that plants use, with the names that the OPC Foundation gives
// them in UNECE_to_OPCUA.csv.
var units = [...]unit{
	{"C81", "rad", "radian", ""},
	{"DD", "°", "degree [unit of angle]", "deg"},
	{"E96", "°/s", "degree per second", "deg/s"},
	{"C62", "1", "one", ""},
	{"P1", "%", "percent", ""},
	{"NX", "‰", "per mille", ""},
	{"59", "ppm", "parts per million", ""},
	{"61", "ppb", "parts per billion (US)", ""},
	{"Q30", "pH", "pH (potential of Hydrogen)", ""},
	{"2N", "dB", "decibel", ""},
	{"MTR", "m", "metre", ""},
	{"DMT", "dm", "decimetre", ""},
	{"CMT", "cm", "centimetre", ""},
	{"MMT", "mm", "millimetre", ""},
	{"4H", "µm", "micrometre (micron)", ""},
	{"C45", "nm", "nanometre", ""},
	{"KMT", "km", "kilometre", ""},
	{"INH", "in", "inch", "inch"},
	{"FOT", "ft", "foot", ""},
	{"YRD", "yd", "yard", ""},
	{"SMI", "mile", "mile (statute mile)", "mi"},
	{"MTK", "m²", "square metre", "qm"},
	{"CMK", "cm²", "square centimetre", ""},
	{"MMK", "mm²", "square millimetre", ""},
	{"KMK", "km²", "square kilometre", ""},
	{"HAR", "ha", "hectare", ""},
	{"FTK", "ft²", "square foot", ""},
	{"MTQ", "m³", "cubic metre", "cbm"},
	{"DMQ", "dm³", "cubic decimetre", ""},
	{"CMQ", "cm³", "cubic centimetre", "ccm"},
	{"MMQ", "mm³", "cubic millimetre", ""},
	{"LTR", "l", "litre", "L"},
	{"HLT", "hl", "hectolitre", "hL"},
	{"MLT", "ml", "millilitre", "mL"},
	{"4G", "µl", "microlitre", "µL"},
	{"FTQ", "ft³", "cubic foot", "cft"},
	{"GLL", "gal (US)", "gallon (US)", "gal"},
	{"SEC", "s", "second [unit of time]", "sec"},
	{"C26", "ms", "millisecond", ""},
	{"B98", "µs", "microsecond", ""},
	{"C47", "ns", "nanosecond", ""},
	{"MIN", "min", "minute [unit of time]", ""},
	{"HUR", "h", "hour", "hr"},
	{"DAY", "d", "day", ""},
	{"WEE", "wk", "week", ""},
	{"MON", "mo", "month", ""},
	{"ANN", "y", "year", ""},
	{"2A", "rad/s", "radian per second", ""},
	{"MTS", "m/s", "metre per second", ""},
	{"2X", "m/min", "metre per minute", ""},
	{"M60", "m/h", "metre per hour", ""},
	{"C16", "mm/s", "millimetre per second", ""},
	{"H81", "mm/min", "millimetre per minute", ""},
	{"H67", "mm/h", "millimetre per hour", ""},
	{"2M", "cm/s", "centimetre per second", ""},
	{"KMH", "km/h", "kilometre per hour", "kmh kph"},
	{"KNT", "kn", "knot", ""},
	{"HM", "mile/h", "mile per hour (statute mile)", "mph"},
	{"FS", "ft/s", "foot per second", ""},
	{"FR", "ft/min", "foot per minute", ""},
	{"MSK", "m/s²", "metre per second squared", ""},
	{"M41", "mm/s²", "millimetre per second squared", ""},
	{"HTZ", "Hz", "hertz", ""},
	{"KHZ", "kHz", "kilohertz", ""},
	{"MHZ", "MHz", "megahertz", ""},
	{"A86", "GHz", "gigahertz", ""},
	{"RPM", "r/min", "revolutions per minute", "rpm 1/min U/min RPM"},
	{"RPS", "r/s", "revolutions per second", "rps"},
	{"C97", "s⁻¹", "reciprocal second", "1/s"},
	{"H10", "1/h", "reciprocal hour", ""},
	{"KGM", "kg", "kilogram", ""},
	{"GRM", "g", "gram", ""},
	{"MGM", "mg", "milligram", ""},
	{"MC", "µg", "microgram", ""},
	{"TNE", "t", "tonne (metric ton)", "ton"},
	{"LBR", "lb", "pound", "lbs"},
	{"ONZ", "oz", "ounce (avoirdupois)", ""},
	{"KMQ", "kg/m³", "kilogram per cubic metre", ""},
	{"23", "g/cm³", "gram per cubic centimetre", ""},
	{"A93", "g/m³", "gram per cubic metre", ""},
	{"GP", "mg/m³", "milligram per cubic metre", ""},
	{"GQ", "µg/m³", "microgram per cubic metre", ""},
	{"D41", "t/m³", "tonne per cubic metre", ""},
	{"GL", "g/l", "gram per litre", "g/L"},
	{"M1", "mg/l", "milligram per litre", "mg/L"},
	{"H29", "µg/l", "microgram per litre", "µg/L"},
	{"B35", "kg/l", "kilogram per litre", "kg/L"},
	{"NA", "mg/kg", "milligram per kilogram", ""},
	{"KL", "kg/m", "kilogram per metre", ""},
	{"GM", "g/m²", "gram per square metre", ""},
	{"28", "kg/m²", "kilogram per square metre", ""},
	{"B32", "kg·m²", "kilogram metre squared", ""},
	{"NEW", "N", "newton", ""},
	{"B47", "kN", "kilonewton", ""},
	{"B73", "MN", "meganewton", ""},
	{"C20", "mN", "millinewton", ""},
	{"C78", "lbf", "pound-force", ""},
	{"B37", "kgf", "kilogram-force", ""},
	{"NU", "N·m", "newton metre", ""},
	{"B48", "kN·m", "kilonewton metre", ""},
	{"D83", "mN·m", "millinewton metre", ""},
	{"F88", "N·cm", "newton centimetre", ""},
	{"4P", "N/m", "newton per metre", ""},
	{"F47", "N/mm", "newton per millimetre", ""},
	{"C56", "N/mm²", "newton per square millimetre", ""},
	{"PAL", "Pa", "pascal", ""},
	{"A97", "hPa", "hectopascal", ""},
	{"KPA", "kPa", "kilopascal", ""},
	{"MPA", "MPa", "megapascal", ""},
	{"A89", "GPa", "gigapascal", ""},
	{"BAR", "bar", "bar [unit of pressure]", ""},
	{"MBR", "mbar", "millibar", ""},
	{"B85", "µbar", "microbar", ""},
	{"ATM", "atm", "standard atmosphere", ""},
	{"UA", "Torr", "torr", "torr"},
	{"PS", "lbf/in²", "pound-force per square inch", "psi"},
	{"HP", "mm H₂O", "conventional millimetre of water", "mmH2O mmWC mmWS"},
	{"HN", "mm Hg", "conventional millimetre of mercury", ""},
	{"F79", "inHg", "inch of mercury", ""},
	{"F78", "inH₂O", "inch of water", "inWC"},
	{"C65", "Pa·s", "pascal second", ""},
	{"C24", "mPa·s", "millipascal second", ""},
	{"C7", "cP", "centipoise", ""},
	{"C17", "mm²/s", "millimetre squared per second", ""},
	{"4C", "cSt", "centistokes", ""},
	{"JOU", "J", "joule", ""},
	{"KJO", "kJ", "kilojoule", ""},
	{"3B", "MJ", "megajoule", ""},
	{"GV", "GJ", "gigajoule", ""},
	{"WHR", "W·h", "watt hour", ""},
	{"KWH", "kW·h", "kilowatt hour", ""},
	{"MWH", "MW·h", "megawatt hour (1000 kW.h)", ""},
	{"GWH", "GW·h", "gigawatt hour", ""},
	{"J75", "cal", "calorie (mean)", ""},
	{"K51", "kcal", "kilocalorie (mean)", ""},
	{"WTT", "W", "watt", ""},
	{"C31", "mW", "milliwatt", ""},
	{"KWT", "kW", "kilowatt", ""},
	{"MAW", "MW", "megawatt", ""},
	{"A90", "GW", "gigawatt", ""},
	{"N12", "PS", "Pferdestaerke", ""},
	{"D46", "V·A", "volt - ampere", ""},
	{"KVA", "kV·A", "kilovolt - ampere", ""},
	{"MVA", "MV·A", "megavolt - ampere", ""},
	{"D44", "var", "var", "VAr VAR"},
	{"KVR", "kvar", "kilovar", "kVAr kVAR"},
	{"MAR", "Mvar", "megavar", "MVAr MVAR"},
	{"D54", "W/m²", "watt per square metre", ""},
	{"D53", "W/(m·K)", "watt per metre kelvin", ""},
	{"B42", "kJ/kg", "kilojoule per kilogram", ""},
	{"KGS", "kg/s", "kilogram per second", ""},
	{"F31", "kg/min", "kilogram per minute", ""},
	{"E93", "kg/h", "kilogram per hour", ""},
	{"F30", "kg/d", "kilogram per day", ""},
	{"F29", "g/s", "gram per second", ""},
	{"F28", "g/min", "gram per minute", ""},
	{"F27", "g/h", "gram per hour", ""},
	{"E18", "t/h", "tonne per hour", ""},
	{"L71", "t/d", "tonne per day", ""},
	{"4U", "lb/h", "pound per hour", ""},
	{"MQS", "m³/s", "cubic metre per second", ""},
	{"G53", "m³/min", "cubic metre per minute", ""},
	{"MQH", "m³/h", "cubic metre per hour", "cbm/h"},
	{"G52", "m³/d", "cubic metre per day", ""},
	{"G51", "l/s", "litre per second", "L/s"},
	{"L2", "l/min", "litre per minute", "L/min lpm"},
	{"E32", "l/h", "litre per hour", "L/h"},
	{"LD", "l/d", "litre per day", "L/d"},
	{"40", "ml/s", "millilitre per second", "mL/s"},
	{"41", "ml/min", "millilitre per minute", "mL/min"},
	{"G55", "ml/h", "millilitre per hour", "mL/h"},
	{"2K", "ft³/h", "cubic foot per hour", ""},
	{"2L", "ft³/min", "cubic foot per minute", "cfm"},
	{"G2", "gal (US) /min", "US gallon per minute", "gpm gal/min"},
	{"KEL", "K", "kelvin", ""},
	{"CEL", "°C", "degree Celsius", "C degC"},
	{"FAH", "°F", "degree Fahrenheit", "F degF"},
	{"F12", "K/s", "kelvin per second", ""},
	{"F11", "K/min", "kelvin per minute", ""},
	{"F10", "K/h", "kelvin per hour", ""},
	{"H14", "°C/s", "degree Celsius per second", ""},
	{"H13", "°C/min", "degree Celsius per minute", ""},
	{"H12", "°C/h", "degree Celsius per hour", ""},
	{"AMP", "A", "ampere", ""},
	{"B22", "kA", "kiloampere", ""},
	{"4K", "mA", "milliampere", ""},
	{"B84", "µA", "microampere", ""},
	{"AMH", "A·h", "ampere hour", ""},
	{"E09", "mA·h", "milliampere hour", ""},
	{"VLT", "V", "volt", ""},
	{"KVT", "kV", "kilovolt", ""},
	{"2Z", "mV", "millivolt", ""},
	{"D82", "µV", "microvolt", ""},
	{"D50", "V/m", "volt per metre", ""},
	{"OHM", "Ω", "ohm", "ohm Ohm"},
	{"E45", "mΩ", "milliohm", "mohm mOhm"},
	{"B49", "kΩ", "kiloohm", "kohm kOhm"},
	{"B75", "MΩ", "megaohm", "MOhm"},
	{"SIE", "S", "siemens", ""},
	{"D10", "S/m", "siemens per metre", ""},
	{"H61", "mS/cm", "millisiemens per centimetre", ""},
	{"G42", "µS/cm", "microsiemens per centimetre", ""},
	{"4O", "µF", "microfarad", ""},
	{"C41", "nF", "nanofarad", ""},
	{"4T", "pF", "picofarad", ""},
	{"C14", "mH", "millihenry", ""},
	{"D33", "T", "tesla", ""},
	{"C29", "mT", "millitesla", ""},
	{"LUX", "lx", "lux", ""},
	{"LUM", "lm", "lumen", ""},
	{"CDL", "cd", "candela", ""},
	{"C34", "mol", "mole", ""},
	{"C38", "mol/l", "mole per litre", "mol/L"},
	{"BQL", "Bq", "becquerel", ""},
	{"D13", "Sv", "sievert", ""},
	{"C28", "mSv", "millisievert", ""},
}
