// A library between a program and the imitations, like librcl.
int rmw_publish(void *, void *, void *);
int user_publish(void *publisher, void *message, void *allocation)
{
	return rmw_publish(publisher, message, allocation);
}
