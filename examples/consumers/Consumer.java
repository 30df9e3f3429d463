import java.io.StringReader;
import java.util.HashSet;
import java.util.Set;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.xml.parsers.DocumentBuilderFactory;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.InputSource;

/**
 * Prints the changes that content change messages tell of, read over JMS.
 *
 * <pre>java Consumer URL TOPIC SELECTOR [USER PASSWORD]</pre>
 *
 * The subscription is durable: the broker keeps messages while this program is away. Each message is acknowledged after
 * its changes were handled, so one may come again; its id tells.
 */
public class Consumer {
    private static final String ATOM = "http://www.w3.org/2005/Atom";
    private static final String NAME = "example-java";

    public static void main(String[] arguments) throws Exception {
        String user = arguments.length > 3 ? arguments[3] : null;
        String password = arguments.length > 4 ? arguments[4] : null;
        Connection connection = new ActiveMQConnectionFactory(user, password, arguments[0]).createConnection();
        connection.setClientID(NAME);
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer =
            session.createDurableSubscriber(session.createTopic(arguments[1]), NAME, arguments[2], false);
        connection.start();
        System.out.println("listening");
        // A consumer that keeps an index keeps these with it.
        Set<String> seen = new HashSet<>();
        while (true) {
            Message message = consumer.receive();
            if (message == null) {
                return;
            }
            if (seen.add(message.getStringProperty("messageId"))) {
                handle(((TextMessage) message).getText());
            }
            message.acknowledge();
        }
    }

    private static void handle(String text) throws Exception {
        DocumentBuilderFactory factory = DocumentBuilderFactory.newInstance();
        factory.setNamespaceAware(true);
        factory.setFeature("http://apache.org/xml/features/disallow-doctype-decl", true);
        Element feed = factory.newDocumentBuilder().parse(new InputSource(new StringReader(text))).getDocumentElement();
        NodeList entries = feed.getElementsByTagNameNS(ATOM, "entry");
        for (int at = 0; at < entries.getLength(); at++) {
            Element entry = (Element) entries.item(at);
            String change = find(entry, "category", "scheme", "changes:ITEM:CHANGE:TYPE", "term");
            String item = find(entry, "link", "rel", "via", "href");
            NodeList content = entry.getElementsByTagNameNS(ATOM, "content");
            String source = content.getLength() > 0 ? ((Element) content.item(0)).getAttribute("src") : "-";
            System.out.println((change == null ? "STATE" : change) + " " + item + " " + source);
        }
    }

    /** Returns an attribute of the first element whose other attribute has this value. */
    private static String find(Element entry, String element, String attribute, String value, String wanted) {
        NodeList elements = entry.getElementsByTagNameNS(ATOM, element);
        for (int at = 0; at < elements.getLength(); at++) {
            Element one = (Element) elements.item(at);
            if (one.getAttribute(attribute).equals(value)) {
                return one.getAttribute(wanted);
            }
        }
        return null;
    }
}
