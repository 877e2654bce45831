package main

type runCommand struct {
	Config string `required:"" placeholder:"FILE" help:"Site file."`
	Data   string `placeholder:"DIR" help:"Folder of certificates and all that is kept (default: edged-data beside the site file)."`
}

func (c *runCommand) Run(p *program) error { return nil }
