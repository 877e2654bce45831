package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"edged/uaserver/pki"
)

// certsCommand is what a person does with certificates, beside a gateway that runs or before it does.
type certsCommand struct {
	Show   certsShow   `cmd:"" help:"Show the gateway's own certificate."`
	List   certsList   `cmd:"" help:"List certificates of clients and users: trusted, issuers, rejected."`
	Trust  certsTrust  `cmd:"" help:"Trust a client's certificate that was refused, or one in a file."`
	Reject certsReject `cmd:"" help:"Trust a certificate no longer."`
	Renew  certsRenew  `cmd:"" help:"Make a new certificate for the gateway; its clients have to be told."`
}

// certsFlags say whose certificates they are.
type certsFlags struct {
	Config string `placeholder:"FILE" help:"Site file of the gateway."`
	Data   string `placeholder:"DIR" help:"Its data folder (default: edged-data beside the site file)."`
	JSON   bool   `name:"json" help:"One JSON object a line instead of text."`
}

// dir is the folder of the certificates.
func (f *certsFlags) dir() (string, error) {
	data := f.Data
	if data == "" {
		if f.Config == "" {
			return "", usageError{errors.New("certs: whose? name the gateway's data folder with --data DIR, or its site file with --config FILE")}
		}
		data = dataBeside(f.Config)
	}
	if _, err := os.Stat(data); err != nil {
		return "", fmt.Errorf("%s: there is no such data folder: name another with --data, or start the gateway once", data)
	}
	return filepath.Join(data, "pki"), nil
}

// certificateRow is what is told of a certificate. Its keys are those of the text form.
type certificateRow struct {
	Folder     string   `json:"folder"`
	Kind       string   `json:"kind,omitempty"` // certificate or revocation list
	Thumbprint string   `json:"thumbprint,omitempty"`
	Subject    string   `json:"subject,omitempty"`
	Issuer     string   `json:"issuer,omitempty"` // where it is another than the subject
	URI        string   `json:"uri,omitempty"`
	Hosts      []string `json:"hosts,omitempty"`
	From       string   `json:"from,omitempty"`
	End        string   `json:"end,omitempty"`
	DaysLeft   *int     `json:"daysLeft,omitempty"`
	KeyBits    int      `json:"keyBits,omitempty"`
	Revoked    int      `json:"revoked,omitempty"` // certificates on a revocation list
	File       string   `json:"file"`
	Error      string   `json:"error,omitempty"`
}

const (
	kindCertificate = "certificate"
	kindList        = "revocation list"
)

// ownRow describes the gateway's own certificate.
func ownRow(dir string, own *pki.Own) certificateRow {
	c := own.Certificate()
	days := own.DaysLeft(time.Now())
	row := certificateRow{
		Folder: pki.OwnFolder, Kind: kindCertificate, Thumbprint: own.Thumbprint().String(), Subject: c.Subject.String(), URI: pki.URI(c),
		From: utcText(c.NotBefore), End: utcText(c.NotAfter), DaysLeft: &days,
		KeyBits: own.Key().N.BitLen(), File: filepath.Join(dir, pki.OwnFolder, "certificate.der"),
	}
	row.Hosts = append(row.Hosts, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		row.Hosts = append(row.Hosts, ip.String())
	}
	if issuer := c.Issuer.String(); issuer != row.Subject {
		row.Issuer = issuer
	}
	return row
}

// entryRow describes a file of the folders.
func entryRow(dir string, e *pki.Entry) certificateRow {
	row := certificateRow{Folder: e.Folder, File: filepath.Join(dir, e.Folder, e.File)}
	switch {
	case e.Err != nil:
		row.Error = e.Err.Error()
	case e.List != nil:
		row.Kind, row.Issuer, row.From, row.Revoked = kindList, e.List.Issuer.String(), utcText(e.List.ThisUpdate), e.Listed
		row.ends(e.List.NextUpdate)
	default:
		row.Kind, row.Thumbprint, row.Subject, row.URI = kindCertificate, e.Thumbprint().String(), e.Cert.Subject.String(), pki.URI(e.Cert)
		if issuer := e.Cert.Issuer.String(); issuer != row.Subject {
			row.Issuer = issuer
		}
		row.From = utcText(e.Cert.NotBefore)
		row.ends(e.Cert.NotAfter)
	}
	return row
}

// ends fills in an end, where there is one.
func (r *certificateRow) ends(at time.Time) {
	if at.IsZero() {
		return
	}
	days := pki.DaysUntil(at, time.Now())
	r.End, r.DaysLeft = utcText(at), &days
}

func utcText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// columns are the row as a line of the table.
func (r *certificateRow) columns() []column {
	days, name := "", r.Subject
	if r.DaysLeft != nil {
		days = fmt.Sprint(*r.DaysLeft)
	}
	switch {
	case r.Error != "":
		name = filepath.Base(r.File) + ": " + r.Error
	case r.Kind == kindList:
		name = fmt.Sprintf("%s (revocation list, %s)", r.Issuer, counted(r.Revoked, "certificate", "certificates"))
	}
	return []column{{name: "folder", text: r.Folder}, {name: "thumbprint", text: r.Thumbprint}, {name: "end", text: r.End}, {name: "daysLeft", text: days}, {name: "uri", text: r.URI}, {name: "subject", text: name}}
}

// print prints rows: as a table, or one JSON object a line.
func (f *certsFlags) print(p *program, rows []certificateRow) error {
	t := newTable(p.stdout, false)
	for i := range rows {
		var err error
		if f.JSON {
			err = json.NewEncoder(p.stdout).Encode(&rows[i])
		} else {
			err = t.row(rows[i].columns()...)
		}
		if err != nil {
			return err
		}
	}
	return t.flush()
}

type certsShow struct{ certsFlags }

// Run shows the own certificate.
func (c *certsShow) Run(p *program) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	own, err := pki.Load(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s holds no certificate of the gateway: it is made at the first start, or by `edged certs renew`", filepath.Join(dir, pki.OwnFolder))
	}
	if err != nil {
		return err
	}
	return c.show(p, ownRow(dir, own))
}

// show prints one row, a line a fact.
func (f *certsFlags) show(p *program, row certificateRow) error {
	if f.JSON {
		return f.print(p, []certificateRow{row})
	}
	t := newTable(p.stdout, false)
	for _, fact := range []column{
		{name: "thumbprint", text: row.Thumbprint}, {name: "subject", text: row.Subject}, {name: "issuer", text: row.Issuer},
		{name: "uri", text: row.URI}, {name: "hosts", text: strings.Join(row.Hosts, " ")}, {name: "from", text: row.From},
		{name: "end", text: row.End}, {name: "daysLeft", text: fmt.Sprint(*row.DaysLeft)}, {name: "keyBits", text: fmt.Sprint(row.KeyBits)}, {name: "file", text: row.File},
	} {
		if fact.text == "" {
			continue
		}
		if err := t.row(column{name: "own certificate", text: fact.name}, column{text: fact.text}); err != nil {
			return err
		}
	}
	return t.flush()
}

type certsList struct{ certsFlags }

// Run lists what lies in the folders.
func (c *certsList) Run(p *program) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	all, err := pki.Entries(dir)
	if err != nil {
		return err
	}
	rows := make([]certificateRow, len(all))
	for i := range all {
		rows[i] = entryRow(dir, &all[i])
	}
	return c.print(p, rows)
}

type certsTrust struct {
	certsFlags
	userFlag
	Name string `arg:"" name:"thumbprint" help:"First digits of the thumbprint of a refused certificate, or a certificate's file."`
}

// userFlag says whose certificates are meant.
type userFlag struct {
	User bool `help:"It is a user's certificate, not a client's."`
}

// folder is one of the folders.
func (f *userFlag) folder(name string) string {
	if f.User {
		return pki.OfUsers(name)
	}
	return name
}

// Run moves a certificate from rejected to trusted, or copies one from a file.
func (c *certsTrust) Run(p *program) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	var e pki.Entry
	if info, serr := os.Stat(c.Name); serr == nil && info.Mode().IsRegular() {
		e, err = pki.Add(dir, c.Name, c.folder(pki.TrustedFolder))
	} else {
		e, err = pki.Move(dir, c.Name, c.folder(pki.RejectedFolder), c.folder(pki.TrustedFolder))
	}
	if err != nil {
		return err
	}
	return c.print(p, []certificateRow{entryRow(dir, &e)})
}

type certsReject struct {
	certsFlags
	userFlag
	Thumbprint string `arg:"" name:"thumbprint" help:"First digits of the thumbprint of a trusted certificate."`
}

// Run moves a certificate from trusted to rejected.
func (c *certsReject) Run(p *program) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	e, err := pki.Move(dir, c.Thumbprint, c.folder(pki.TrustedFolder), c.folder(pki.RejectedFolder))
	if err != nil {
		return err
	}
	return c.print(p, []certificateRow{entryRow(dir, &e)})
}

type certsRenew struct {
	certsFlags
	Bits int `placeholder:"N" help:"Make a new key too, of 2048, 3072 or 4096 bits."`
}

// Run makes a new own certificate for this machine's names, with the application URI of the site file; without one, that
// of the old certificate.
func (c *certsRenew) Run(p *program) error {
	switch c.Bits {
	case 0, 2048, 3072, 4096:
	default:
		return usageError{fmt.Errorf("--bits %d: it is 2048, 3072 or 4096", c.Bits)}
	}
	id, err := c.identity()
	if err != nil {
		return err
	}
	dir, err := c.dir()
	if err != nil {
		return err
	}
	own, err := pki.Renew(dir, id, c.Bits)
	if err != nil {
		return err
	}
	p.log.Info("a new certificate was made: a gateway that runs gives it to new channels within seconds; have its clients trust it")
	return c.show(p, ownRow(dir, own))
}

func (c *certsRenew) identity() (pki.Identity, error) {
	id := pki.Identity{Hosts: pki.Hosts()}
	if c.Config != "" {
		s, err := loadSite(c.Config)
		if err != nil {
			return id, err
		}
		id.ApplicationURI, id.Name, id.KeyBits = s.Server.ApplicationURI, s.Server.Name, s.Server.Security.KeySize
		return id, nil
	}
	dir, err := c.dir()
	if err != nil {
		return id, err
	}
	own, err := pki.Load(dir)
	if err != nil {
		return id, fmt.Errorf("%w; name the site file with --config FILE, which has the application URI", err)
	}
	id.ApplicationURI, id.Name = pki.URI(own.Certificate()), own.Certificate().Subject.CommonName
	return id, nil
}
