package sim

import "time"

// The demo plant's lines.
const (
	DemoTCP = "line1" // boiler, unit 1
	DemoRTU = "line2" // burner, unit 7, at 19200 baud
)

// Demo is the plant of `edged demo`: a boiler on Modbus TCP and a burner on a serial line.
func Demo() Config {
	return Config{
		Lines: []LineConfig{
			{Name: DemoTCP, URL: "tcp://127.0.0.1:0"},
			{Name: DemoRTU, URL: "rtu:?baud=19200&parity=even", Pace: true},
		},
		Devices: []DeviceConfig{
			{
				Name: "boiler", Line: DemoTCP, Unit: 1,
				Identity: []string{"edged", "SIM-B1", "1.0", "", "Simulated boiler", "B1"},
				Points: []PointConfig{
					{Address: "holding:0", Type: "float32", Wave: Wave{Kind: "sine", Period: time.Minute, Min: 20, Max: 90}},
					{Address: "holding:2", Type: "uint32", Wave: Wave{Kind: "counter", Every: 100 * time.Millisecond}},
					{Address: "holding:4", Repeat: 6},
					{Address: "holding:10", Type: "uint16", Value: 650}, // set point, tenths of a degree
					{Address: "holding:11", Repeat: 9},
					{Address: "holding:20", Type: "int16", Wave: Wave{Kind: "sine", Period: 5 * time.Minute, Min: -50, Max: 250}},
					{Address: "holding:21", Repeat: 9},
					{Address: "holding:30", Type: "uint16", Wave: Wave{Kind: "square", Period: 20 * time.Second, Min: 0, Max: 1 << 4}}, // alarm: bit 4
					{Address: "coil:0", Repeat: 3},
					{Address: "coil:3", Value: true}, // running
					{Address: "coil:4", Repeat: 12},
				},
			},
			{
				Name: "burner", Line: DemoRTU, Unit: 7,
				Identity: []string{"edged", "SIM-F7", "1.0", "", "Simulated burner", "F7"},
				Points: []PointConfig{
					{Address: "input:0", Type: "float32", Order: "CDAB", Wave: Wave{Kind: "sine", Period: 40 * time.Second, Min: 0.8, Max: 4.2}}, // pressure, bar
					{Address: "input:2", Type: "uint16", Wave: Wave{Kind: "random", Every: time.Second, Min: 1200, Max: 1450}},                   // fan, rpm
					{Address: "holding:0", Type: "uint16", Value: 50},                                                                            // modulation, percent
					{Address: "coil:0", Value: true},                                              // enabled
					{Address: "discrete:0", Wave: Wave{Kind: "square", Period: 30 * time.Second}}, // flame
				},
			},
		},
	}
}
